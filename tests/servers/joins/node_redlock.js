// Goal of this file: node-redlock, version 5.
'use strict';

const { LEASE, load, port, serve } = require('./serve');
const { default: Redlock, ResourceLockedError } = load('redlock5');
const client = new (load('ioredis'))(port);

serve(async (name, blocking) => {
  const redlock = new Redlock([client], { retryCount: blocking ? LEASE / 50 : 0, retryDelay: 50 });
  let isLocked = false;
  redlock.on('error', (e) => { isLocked = e instanceof ResourceLockedError; });
  try {
    const lock = await redlock.acquire([name], LEASE);
    return () => lock.release();
  } catch (e) {
    if (isLocked) return null;
    throw e;
  }
});
