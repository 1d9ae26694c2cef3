// Draws cells with WebGL2: codes are a texture, of which only changed rows are sent anew.
import { NOT_KNOWN, NOT_LATELY, PATTERN_PX } from "./cells.js";

const VERTEX = `#version 300 es
void main() {
  gl_Position = vec4(vec2(gl_VertexID & 1, gl_VertexID >> 1) * 4.0 - 1.0, 0.0, 1.0);
}`;
// A pixel shows the worst of the cells that it covers: none vanishes because it is small.
const FRAGMENT = `#version 300 es
precision highp float;
precision highp int;
precision highp usampler2D;
uniform usampler2D codes;
uniform vec2 size;
uniform vec4 palette[16];
uniform vec4 ink;
uniform vec4 worstInk;
uniform uint worstCode;
out vec4 colour;
void main() {
  ivec2 count = textureSize(codes, 0);
  vec2 pixel = vec2(gl_FragCoord.x - 0.5, size.y - gl_FragCoord.y - 0.5);
  vec2 scale = vec2(count) / size;
  ivec2 first = min(ivec2(floor(pixel * scale)), count - 1);
  ivec2 last = min(ivec2(ceil((pixel + 1.0) * scale)) - 1, count - 1);
  if (scale.x <= 1.0) last.x = first.x;
  if (scale.y <= 1.0) last.y = first.y;
  uint worst = 0u;
  for (int y = first.y; y <= last.y; y++)
    for (int x = first.x; x <= last.x; x++) worst = max(worst, texelFetch(codes, ivec2(x, y), 0).r);
  colour = palette[worst];
  vec2 cell = 1.0 / scale;
  if (min(cell.x, cell.y) < ${PATTERN_PX}.0) return;
  vec2 at = pixel - vec2(first) * cell;
  vec2 part = at / cell;
  bool marked = false;
  if (worst == ${NOT_LATELY}u) marked = mod(at.x + at.y, 6.0) < 1.5;
  if (worst == ${NOT_KNOWN}u) marked = distance(at, cell * 0.5) < 2.0;
  if (worst == worstCode) marked = min(abs(part.x - part.y), abs(part.x + part.y - 1.0)) * min(cell.x, cell.y) < 1.0;
  if (marked) colour = worst == worstCode ? worstInk : ink;
  if (min(at.x, at.y) < 1.0) colour = palette[15];
}`;

/** Draws by WebGL2; throws where the browser has none. */
export class WebGlHeat {
  constructor(canvas) {
    // Kept after drawing, so that what is shown can be read back.
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: false, preserveDrawingBuffer: true });
    if (gl === null) throw new Error("no WebGL2");
    this.name = "webgl";
    this.canvas = canvas;
    this.gl = gl;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program) ?? "");
    gl.useProgram(program);
    this.at = (name) => gl.getUniformLocation(program, name);
    this.texture = null;
  }

  /** Take all cells, or the rows of them that changed. */
  take(cells, changed) {
    const { gl } = this;
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    if (changed === null) {
      gl.deleteTexture(this.texture);
      this.texture = gl.createTexture();
      gl.bindTexture(gl.TEXTURE_2D, this.texture);
      for (const side of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, side, gl.NEAREST);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.R8UI, cells.cols, cells.rows, 0, gl.RED_INTEGER, gl.UNSIGNED_BYTE, cells.codes);
    } else {
      for (const row of changed) {
        gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, row, cells.cols, 1, gl.RED_INTEGER, gl.UNSIGNED_BYTE, cells.row(row));
      }
    }
  }

  draw({ palette, ink, worstInk, worst }) {
    const { gl, canvas } = this;
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.uniform2f(this.at("size"), canvas.width, canvas.height);
    gl.uniform4fv(this.at("palette"), palette.flatMap(([r, g, b]) => [r / 255, g / 255, b / 255, 1]));
    gl.uniform4f(this.at("ink"), ...ink.map((c) => c / 255), 1);
    gl.uniform4f(this.at("worstInk"), ...worstInk.map((c) => c / 255), 1);
    gl.uniform1ui(this.at("worstCode"), worst);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  free() {
    this.gl.deleteTexture(this.texture);
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }
}
