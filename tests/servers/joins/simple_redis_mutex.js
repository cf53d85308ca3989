// Goal of this file: simple-redis-mutex.
'use strict';

const { LEASE, load, port, serve } = require('./serve');
const { lock, tryLock } = load('simple-redis-mutex');
const client = load('redis').createClient({ url: `redis://127.0.0.1:${port}` });
const connected = client.connect();

serve(async (name, blocking) => {
  await connected;
  if (blocking) return lock(client, name, { timeout: LEASE, pollingInterval: 100 });
  const [got, release] = await tryLock(client, name, { timeout: LEASE });
  return got ? release : null;
});
