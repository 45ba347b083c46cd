const SECOND_MS = 1000;
/** A clock may be so much behind the one that wrote the instant. */
const MAX_SKEW_SECONDS = 1;

/** A duration as kubectl writes ages: two units at most, the finer one only while it tells. Source: apimachinery, HumanDuration. */
export function formatAge(ms: number): string {
  const seconds = Math.trunc(ms / SECOND_MS);
  const minutes = Math.trunc(seconds / 60);
  const hours = Math.trunc(minutes / 60);
  const days = Math.trunc(hours / 24);
  const years = Math.trunc(days / 365);
  if (seconds < -MAX_SKEW_SECONDS) return '<invalid>';
  if (seconds < 0) return '0s';
  if (seconds < 120) return `${seconds}s`;
  if (minutes < 10) return twoUnits(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return `${minutes}m`;
  if (hours < 8) return twoUnits(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return `${hours}h`;
  if (days < 8) return twoUnits(days, 'd', hours % 24, 'h');
  if (days < 2 * 365) return `${days}d`;
  if (days < 8 * 365) return twoUnits(years, 'y', days % 365, 'd');
  return `${years}y`;
}

function twoUnits(coarse: number, coarseUnit: string, fine: number, fineUnit: string): string {
  return fine === 0 ? `${coarse}${coarseUnit}` : `${coarse}${coarseUnit}${fine}${fineUnit}`;
}
