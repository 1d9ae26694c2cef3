// Draws cells where there is no WebGL2: the same picture, pixel by pixel.
import { covered, NOT_KNOWN, NOT_LATELY, PATTERN_PX } from "./cells.js";

export class CanvasHeat {
  constructor(canvas) {
    this.name = "canvas";
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.cells = null;
  }

  take(cells) {
    this.cells = cells;
  }

  draw({ palette, ink, worstInk, worst }) {
    const { canvas, context, cells } = this;
    const { width, height } = canvas;
    const colours = new Uint32Array(palette.map(([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r));
    const columns = Array.from({ length: width }, (_, x) => covered(x, width, cells.cols));
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let y = 0; y < height; y++) {
      const [top, bottom] = covered(y, height, cells.rows);
      for (let x = 0; x < width; x++) {
        const [left, right] = columns[x];
        let code = 0;
        for (let row = top; row <= bottom; row++) {
          const start = row * cells.cols;
          for (let at = start + left; at <= start + right; at++) if (cells.codes[at] > code) code = cells.codes[at];
        }
        pixels[y * width + x] = colours[code];
      }
    }
    context.putImageData(image, 0, 0);
    const cell = { width: width / cells.cols, height: height / cells.rows };
    if (Math.min(cell.width, cell.height) >= PATTERN_PX) this.mark(cell, { line: palette[15], ink, worstInk }, worst);
  }

  mark(cell, { line, ink, worstInk }, worst) {
    const { context, cells } = this;
    context.lineWidth = 1.5;
    for (let row = 0; row < cells.rows; row++) {
      for (let col = 0; col < cells.cols; col++) {
        const code = cells.at(row, col);
        const [x, y] = [col * cell.width, row * cell.height];
        context.save();
        context.beginPath();
        context.rect(x, y, cell.width, cell.height);
        context.clip();
        context.beginPath();
        context.strokeStyle = context.fillStyle = `rgb(${code === worst ? worstInk : ink})`;
        if (code === NOT_LATELY) {
          for (let d = 0; d < cell.width + cell.height; d += 6) {
            context.moveTo(x + d, y);
            context.lineTo(x, y + d);
          }
        } else if (code === worst) {
          context.moveTo(x, y);
          context.lineTo(x + cell.width, y + cell.height);
          context.moveTo(x + cell.width, y);
          context.lineTo(x, y + cell.height);
        }
        context.stroke();
        if (code === NOT_KNOWN) {
          context.arc(x + cell.width / 2, y + cell.height / 2, 2, 0, 7);
          context.fill();
        }
        context.fillStyle = `rgb(${line})`;
        context.fillRect(x, y, cell.width, 1);
        context.fillRect(x, y, 1, cell.height);
        context.restore();
      }
    }
  }

  free() {}
}
