// JSON Merge Patch, RFC 7396.

/** Return what a patch makes of a document; neither is changed. */
export function merged(document, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const whole = document !== null && typeof document === "object" && !Array.isArray(document);
  const result = whole ? { ...document } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = merged(result[key], value);
  }
  return result;
}
