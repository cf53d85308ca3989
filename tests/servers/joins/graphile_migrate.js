// Goal of this file: the lock of graphile-migrate, by a connection that goes on with the first question after it
// when it is told to.
'use strict';

const fs = require('fs');
const os = require('os');
const path = require('path');
const { during, load, serve, url } = require('./serve');
const { Client } = load('pg');
const { migrate } = load('graphile-migrate');
const quiet = new (load('graphile-migrate').Logger)(() => () => {});

const query = Client.prototype.query;
let inside;

// As postgres_migrations.js does it, for all clients: this one makes its own.
Client.prototype.query = async function hold(...question) {
  const answer = await query.apply(this, question);
  if (answer?.rows?.[0]?.locked === true) await inside();
  return answer;
};

serve(during(async (then) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'dlock-migrate-'));
  inside = then;
  try {
    await migrate({ connectionString: url, migrationsFolder: dir, logger: quiet });
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
}, (e) => /exclusive lock/.test(e.message)));
