# Goal of this file: the locks of tooz, with whatever its URL names.

import sys

from tooz import coordination

from serve import DATABASE, PORT, serve

KIND = sys.argv[3]
WHERE = {"redis": f"redis://127.0.0.1:{PORT}", "memcached": f"memcached://127.0.0.1:{PORT}", "zookeeper": f"zookeeper://127.0.0.1:{PORT}",
         "postgresql": f"postgresql://app@127.0.0.1:{PORT}/{DATABASE}", "mysql": f"mysql://app@127.0.0.1:{PORT}/{DATABASE}"}

coordinator = coordination.get_coordinator(WHERE[KIND], b"me")
coordinator.start(start_heart=True)
serve(lambda name: coordinator.get_lock(name.encode()))
coordinator.stop()
