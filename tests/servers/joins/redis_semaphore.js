// Goal of this file: Mutex of redis-semaphore.
'use strict';

const { LEASE, load, port, serve } = require('./serve');
const { Mutex } = load('redis-semaphore');
const client = new (load('ioredis'))(port);

serve(async (name, blocking) => {
  const attempts = blocking ? Number.POSITIVE_INFINITY : 1;
  const mutex = new Mutex(client, name, { acquireAttemptsLimit: attempts, acquireTimeout: LEASE, lockTimeout: LEASE });
  return await mutex.tryAcquire() ? () => mutex.release() : null;
});
