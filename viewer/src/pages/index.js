// The pages, in the order of the keys that open them.

import { memory } from "./memory.js";
import { timeline } from "./timeline.js";
import { verdict } from "./verdict.js";

/** @type {import("../main.js").Page[]} */
export const pages = [verdict, memory, timeline];
