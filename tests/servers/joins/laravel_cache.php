<?php
// Goal of this file: Cache::lock() of Laravel, with its usual prefixes, on the server that the third word names.

require __DIR__ . '/serve.php';
require 'Illuminate/Cache/autoload.php';

use Illuminate\Cache\MemcachedStore;
use Illuminate\Cache\RedisStore;
use Illuminate\Redis\RedisManager;

if ($argv[3] == 'redis') {
    $manager = new RedisManager(null, 'phpredis', ['options' => ['prefix' => 'laravel_database_'],
                                                   'default' => ['host' => '127.0.0.1', 'port' => PORT]]);
    $store = new RedisStore($manager, 'laravel_cache');
} else {
    $server = new Memcached();
    $server->addServer('127.0.0.1', PORT);
    $store = new MemcachedStore($server, 'laravel_cache');
}

serve(fn ($name) => $store->lock($name, LEASE), fn ($lock, $blocking) => $blocking ? $lock->block(LEASE) : $lock->acquire());
