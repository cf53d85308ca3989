// Goal of this file: the lock of postgres-migrations, which only waits, by a client of its own that
// lets its first question after the lock wait.
'use strict';

const fs = require('fs');
const os = require('os');
const path = require('path');
const { during, load, pg, serve } = require('./serve');
const { migrate } = load('postgres-migrations');

serve(during(async (inside) => {
  const client = new (load('pg').Client)(pg);
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'dlock-migrate-'));
  let got = false;
  await client.connect();
  const asked = {
    query: async (...question) => {
      if (got) {
        got = false;
        await inside();
      }
      const answer = await client.query(...question);
      got = answer.rows?.[0]?.pg_try_advisory_lock === true;
      return answer;
    },
  };
  try {
    await migrate({ client: asked }, dir);
  } finally {
    await client.end();
    fs.rmSync(dir, { recursive: true });
  }
}));
