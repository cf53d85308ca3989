// Goal of this file: advisory-lock.
'use strict';

const { load, serve, url } = require('./serve');
const lockOf = load('advisory-lock').default(url);

serve((name, blocking) => (blocking ? lockOf(name).lock() : lockOf(name).tryLock()));
