<?php
// Goal of this file: what each client in PHP has in common; see serve.py.

const LEASE = 600;
define('PORT', (int)$argv[1]);
define('DATABASE', $argv[2] ?? null);

// $lock($name) makes what has release(), and $acquire(that, bool $blocking) takes it.
function serve(callable $lock, callable $acquire)
{
    $held = null;
    while (($line = fgets(STDIN)) !== false) {
        [$verb, $name] = explode(' ', trim($line));
        if ($verb == 'free') {
            $held->release();
            echo "free\n";
        } else {
            $held = $lock($name);
            echo $acquire($held, $verb == 'wait') ? "held\n" : "busy\n";
        }
    }
}
