// Goal of this file: the lock of pg-boss while it makes its schema, which only waits.  The schema is
// being made by somebody else until the lock is to be given back.
'use strict';

const { load, pg, serve } = require('./serve');
const Boss = load('pg-boss');

serve(async () => {
  const other = new (load('pg').Client)(pg);
  await other.connect();
  await other.query('DROP SCHEMA IF EXISTS pgboss CASCADE');
  await other.query('BEGIN');
  await other.query('CREATE SCHEMA pgboss');
  const boss = new Boss({ ...pg, supervise: false, schedule: false });
  boss.on('error', () => {});
  const started = boss.start();
  const asks = "SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND database IS NULL";
  while ((await other.query(asks)).rowCount === 0) await new Promise((on) => { setTimeout(on, 20); });
  return async () => {
    await other.query('ROLLBACK');
    await other.end();
    await started;
    await boss.stop({ graceful: false });
  };
});
