// Goal of this file: Mutex of redis-semaphore, or its Semaphore of one permit.
'use strict';

const { LEASE, load, port, serve } = require('./serve');
const { Mutex, Semaphore } = load('redis-semaphore');
const client = new (load('ioredis'))(port);

serve(async (name, blocking) => {
  const attempts = blocking ? Number.POSITIVE_INFINITY : 1;
  const options = { acquireAttemptsLimit: attempts, acquireTimeout: LEASE, lockTimeout: LEASE };
  const lock = process.argv[4] === 'semaphore' ? new Semaphore(client, name, 1, options) : new Mutex(client, name, options);
  return await lock.tryAcquire() ? () => lock.release() : null;
});
