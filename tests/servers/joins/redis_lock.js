// Goal of this file: redis-lock, which only waits.
'use strict';

const { LEASE, load, port, serve } = require('./serve');
const client = load('redis4').createClient({ url: `redis://127.0.0.1:${port}` });
const connected = client.connect();

serve(async (name) => {
  await connected;
  return load('redis-lock')(client)(name, LEASE);
});
