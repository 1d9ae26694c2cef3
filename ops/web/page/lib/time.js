// Times: milliseconds since the epoch, shown in UTC as everywhere else in this project.
import { useEffect, useState } from "preact/hooks";

/** Return a time as `2026-11-25 02:27:00`. */
export function utc(ms) {
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString().slice(0, 19).replace("T", " ");
}

/** Return a time with milliseconds, without the day. */
export function clock(ms) {
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString().slice(11, 23);
}

/** Return a duration in the unit that people would choose. */
export function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

/** Give the time, once a second; in a recording the time that is looked at. */
export function useNow(fixed) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (fixed !== null) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [fixed]);
  return fixed ?? now;
}
