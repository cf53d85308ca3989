// Goal of this file: node-redis-warlock.
'use strict';

const { LEASE, load, port, serve } = require('./serve');
const warlock = load('node-redis-warlock')(load('redis3').createClient(port));

serve((name, blocking) => new Promise((resolve, reject) => {
  const got = (e, unlock) => (e ? reject(e) : resolve(unlock && (() => new Promise((done) => { unlock(done); }))));
  if (blocking) warlock.optimistic(name, LEASE, LEASE / 50, 50, got);
  else warlock.lock(name, LEASE, got);
}));
