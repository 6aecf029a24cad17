// The pages, in the order of the keys that open them.

import { compare } from "./compare.js";
import { exchange } from "./exchange.js";
import { live } from "./live.js";
import { liveness } from "./liveness.js";
import { memory } from "./memory.js";
import { operations } from "./operations.js";
import { timeline } from "./timeline.js";
import { verdict } from "./verdict.js";

/** @type {import("../main.js").Page[]} */
export const pages = [verdict, memory, liveness, operations, timeline, exchange, compare, live];
