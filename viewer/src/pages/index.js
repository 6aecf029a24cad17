// The pages, in the order of the keys that open them.

import { verdict } from "./verdict.js";
import { memory } from "./memory.js";

/** @type {import("../main.js").Page[]} */
export const pages = [verdict, memory];
