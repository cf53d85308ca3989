// Goal of this file: locks of packages from npm, for a test that says on stdin what is to be
// done with them, one line each: TOOL VERB KEY [MS]; each is answered by one line, "ok",
// "busy", "lost" or "error ...".  Run where their node_modules are: node locks.js PORT
'use strict';

const { createRequire } = require('module');
const path = require('path');
const readline = require('readline');

const load = createRequire(path.join(process.cwd(), 'x.js'));
const Redis = load('ioredis');
const client = new Redis(Number(process.argv[2]), '127.0.0.1');
const held = {};

const RedlockTool = load('redlock');
const redlock = new RedlockTool([client], { retryCount: 0 });
const patient = new RedlockTool([client], { retryCount: 200, retryDelay: 50, retryJitter: 20 });

const tools = {
  redlock: {
    lock: async (key, ms) => { held[key] = await redlock.lock(key.split(','), ms); return 'ok'; },
    wait: async (key, ms) => { held[key] = await patient.lock(key.split(','), ms); return 'ok'; },
    extend: async (key, ms) => { held[key] = await held[key].extend(ms); return 'ok'; },
    unlock: async (key) => { await held[key].unlock(); return 'ok'; },
  },
  ioredis: {
    lock: async (key, ms) => {
      held[key] = load('ioredis-lock').createLock(client, { timeout: ms, retries: 0 });
      await held[key].acquire(key);
      return 'ok';
    },
    extend: async (key, ms) => { await held[key].extend(ms); return 'ok'; },
    unlock: async (key) => { await held[key].release(); return 'ok'; },
  },
};

function meaning(e) {
  if (/exceeded|Could not acquire|Exceeded/.test(e.message)) return 'busy';
  if (/fully release|Cannot extend|no longer|not held|does not exist|not be released|not been acquired|has expired|had expired/.test(e.message)) return 'lost';
  return `error ${e.name}: ${e.message}`.replace(/\n/g, ' ');
}

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  const [tool, verb, key, ms] = line.split(' ');
  let answer;
  try {
    answer = await tools[tool][verb](key, Number(ms));
  } catch (e) {
    answer = meaning(e);
  }
  process.stdout.write(`${answer}\n`);
}).on('close', () => process.exit(0));
