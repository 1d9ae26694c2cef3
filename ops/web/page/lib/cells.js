// The cells of a matrix: a code for each, and where they fall on pixels.

export const NOT_PROBED = 0;
export const NOT_LATELY = 1;
export const NOT_KNOWN = 2;
export const WELL = 3;
// Cells that are smaller, in pixels of the screen, have a colour and no pattern.
export const PATTERN_PX = 8;

/**
 * Fill a row's codes from its text: `s` and three bytes a cell, or `d` and a byte a column.
 *
 * Return how many of its cells show something.
 */
export function unpack(text, codes) {
  codes.fill(NOT_PROBED);
  if (!text) return 0;
  const bytes = Uint8Array.from(atob(text.slice(1)), (c) => c.charCodeAt(0));
  if (text[0] === "d") {
    codes.set(bytes.subarray(0, codes.length));
    return codes.reduce((sum, code) => sum + (code !== NOT_PROBED), 0);
  }
  for (let i = 0; i + 2 < bytes.length; i += 3) {
    const col = bytes[i] | (bytes[i + 1] << 8);
    if (col < codes.length) codes[col] = bytes[i + 2];
  }
  return bytes.length / 3;
}

/** Codes of all cells, which follow the rows of a document. */
export class Cells {
  constructor(rows, cols) {
    this.rows = rows;
    this.cols = cols;
    this.codes = new Uint8Array(rows * cols);
    this.texts = new Array(rows);
    this.counts = new Uint32Array(rows);
    // How many show something.
    this.count = 0;
  }

  /** Take the rows of a document; return the numbers of those that changed. */
  take(rows) {
    const changed = [];
    for (let row = 0; row < this.rows; row++) {
      const text = rows[row];
      if (text === this.texts[row]) continue;
      this.texts[row] = text;
      this.count -= this.counts[row];
      this.counts[row] = unpack(text, this.row(row));
      this.count += this.counts[row];
      changed.push(row);
    }
    return changed;
  }

  row(row) {
    return this.codes.subarray(row * this.cols, (row + 1) * this.cols);
  }

  at(row, col) {
    return this.codes[row * this.cols + col];
  }

  /** Return the worst cell in a rectangle, as `{row, col}`; bounds are inclusive. */
  worstIn(top, left, bottom, right) {
    let found = { row: top, col: left };
    for (let row = top; row <= bottom; row++) {
      for (let col = left; col <= right; col++) {
        if (this.at(row, col) > this.at(found.row, found.col)) found = { row, col };
      }
    }
    return found;
  }

  /** Return the next cell, row by row, that is worse than well; null: there is none. */
  nextBad(from, step) {
    const n = this.codes.length;
    const start = from.row * this.cols + from.col;
    for (let i = 1; i <= n; i++) {
      const at = (start + step * i + 2 * n) % n;
      if (this.codes[at] > WELL) return { row: Math.floor(at / this.cols), col: at % this.cols };
    }
    return null;
  }
}

/** Return the first and the last of `count` cells that a pixel of `size` pixels covers. */
export function covered(pixel, size, count) {
  const first = Math.min(count - 1, Math.floor((pixel * count) / size));
  // A pixel between two large cells belongs to the first.
  if (count <= size) return [first, first];
  return [first, Math.max(first, Math.min(count - 1, Math.ceil(((pixel + 1) * count) / size) - 1))];
}
