<?php
// Goal of this file: Symfony's Lock with the store that the third word names.

require __DIR__ . '/serve.php';
require 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store;

switch ($argv[3]) {
case 'memcached':
    $server = new Memcached();
    $server->addServer('127.0.0.1', PORT);
    $store = new Store\MemcachedStore($server);
    break;
case 'redis':
case 'redis-read':
    $server = new Redis();
    $server->connect('127.0.0.1', PORT);
    $store = new Store\RedisStore($server);
    break;
case 'postgresql':
    $store = new Store\PostgreSqlStore('pgsql:host=127.0.0.1;port=' . PORT . ';dbname=' . DATABASE, ['db_username' => 'app']);
    break;
}
$factory = new LockFactory($store);
$take = $argv[3] === 'redis-read' ? 'acquireRead' : 'acquire';
serve(fn ($name) => $factory->createLock($name, LEASE), fn ($lock, $blocking) => $lock->$take($blocking));
