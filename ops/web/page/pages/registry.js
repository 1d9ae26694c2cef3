// All pages, in the order of the links on top: a further one is a module here and a line below.
import { agents } from "./agents.js";
import { incident } from "./incident.js";
import { job } from "./job.js";
import { matrix } from "./matrix.js";
import { now } from "./now.js";
import { silences } from "./silences.js";
import { topology } from "./topology.js";

export const PAGES = [now, incident, matrix, topology, job, agents, silences];
