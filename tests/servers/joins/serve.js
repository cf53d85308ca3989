// Goal of this file: what each client of npm has in common; see serve.py.  Run where their
// node_modules are.
'use strict';

const { createRequire } = require('module');
const path = require('path');
const readline = require('readline');

const load = createRequire(path.join(process.cwd(), 'x.js'));
const port = Number(process.argv[2]);
const database = process.argv[3];
const pg = { host: '127.0.0.1', port, user: 'app', password: '', database };
const url = `postgresql://app@127.0.0.1:${port}/${database}`;
const LEASE = 600000;

// take(name, blocking) gives what releases the lock, or nothing if somebody else has it.
function serve(take) {
  let release;
  readline.createInterface({ input: process.stdin }).on('line', async (line) => {
    const [verb, name] = line.split(' ');
    let answer;
    try {
      if (verb === 'free') {
        await release();
        answer = 'free';
      } else {
        release = await take(name, verb === 'wait');
        answer = release ? 'held' : 'busy';
      }
    } catch (e) {
      answer = `error ${e.stack}`.replace(/\n/g, ' ');
    }
    process.stdout.write(`${answer}\n`);
  });
}

// For a lock that is held while run(inside) calls inside(): refused(error) tells that somebody else has it.
function during(run, refused) {
  return () => new Promise((resolve, reject) => {
    const done = run(() => new Promise((end) => {
      resolve(async () => { end(); await done; });
    }));
    done.catch((e) => (refused(e) ? resolve() : reject(e)));
  });
}

module.exports = { LEASE, during, load, pg, port, serve, url };
