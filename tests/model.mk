# model.mk - what spin finds in the models of tests/model/*.pml, whose heads say what is checked.
#
#	make model        3 clients and one fault, keeper and front with one; and that what
#	                  is made wrong on purpose is found.  make check runs what tests/model/proved.txt
#	                  does not know of yet: who changes a model runs this, which writes there
#	make model-full   more of all; minutes, and up to MODEL_MEMORY MB

model = @mkdir -p $(O)/model; CC='$(CC)' tests/model/run.sh $(O)/model

.PHONY: model model-full
model:
	$(model) redis holds -DFAULTS=1 -DKINDS=2
	$(model) redis holds -DFAULTS=0
	$(model) redis holds -DFAULTS=1 -DKINDS=1 -DPROGRESS
	$(model) redis EXCLUSION -DBUG=1 -DFAULTS=0
	$(model) redis EXCLUSION -DBUG=2 -DFAULTS=0
	$(model) redis WOKEN -DBUG=3 -DFAULTS=0
	$(model) redis SERVED -DBUG=4 -DFAULTS=0
	$(model) redis FIFO -DBUG=5 -DFAULTS=0
	$(model) redis PROGRESS -DBUG=6 -DFAULTS=1 -DKINDS=1 -DPROGRESS
	$(model) redis SLOTS -DBUG=7 -DFAULTS=0
	$(model) redis holds -DFAULTS=0 -DFREEZES=1
	$(model) redis holds -DFAULTS=1 -DKINDS=1 -DFREEZES=1
	$(model) redis holds -DFAULTS=0 -DKINDS=1 -DFREEZES=1 -DPROGRESS
	$(model) redis FROZEN -DBUG=8 -DFAULTS=0 -DFREEZES=1
	$(model) redis SERVED -DBUG=9 -DFAULTS=0 -DFREEZES=1
	$(model) redlock holds
	$(model) redlock EXCLUSION -DBUG=1
	$(model) etcd holds -DELECTIONS=0 -DNTH=1
	$(model) etcd holds -DFAULTS=0 -DFREEZES=1 -DELECTIONS=0 -DNTH=1
	$(model) etcd holds -DFAULTS=0
	$(model) etcd holds -DELECTIONS=0 -DNTH=1 -DPROGRESS
	$(model) etcd EXCLUSION -DBUG=1
	$(model) etcd EXCLUSION -DBUG=2 -DFAULTS=0 -DELECTIONS=0
	$(model) etcd EXCLUSION -DBUG=3 -DFAULTS=0
	$(model) etcd EXCLUSION -DBUG=4 -DFAULTS=0
	$(model) etcd EXCLUSION -DBUG=5 -DN=3 -DFAULTS=0 -DELECTIONS=0 -DNTH=1
	$(model) etcd PROGRESS -DBUG=6 -DELECTIONS=0 -DNTH=1 -DPROGRESS
	$(model) etcd FROZEN -DBUG=7 -DFREEZES=1 -DFAULTS=0 -DELECTIONS=0
	$(model) etcd LIE -DBUG=8 -DELECTIONS=0
	$(model) etcd EXCLUSION -DBUG=9
	$(model) zk holds -DFAULTS=2 -DFREEZES=1
	$(model) zk holds -DN=3 -DFREEZES=1 -DFAULTS=0
	$(model) zk holds -DPERMITS -DFREEZES=1
	$(model) zk holds -DPERMITS -DCURATORS=1
	$(model) zk holds -DPERMITS -DN=3 -DLIMIT=2
	$(model) zk SLOTS -DBUG=1 -DPERMITS -DN=3 -DLIMIT=2 -DFAULTS=0
	$(model) zk FROZEN -DBUG=2 -DPERMITS -DFREEZES=1 -DFAULTS=0
	$(model) zk FROZEN -DBUG=3 -DFREEZES=1 -DFAULTS=0
	$(model) zk LEASES -DBUG=4 -DPERMITS
	$(model) zk LEFT -DBUG=5 -DPERMITS
	$(model) zk LEFT -DBUG=6 -DPERMITS
	$(model) zk STUCK -DBUG=7 -DPERMITS -DN=3 -DTIRED=0
	$(model) zk ORDER -DBUG=8 -DPERMITS -DN=3 -DLIMIT=2 -DFAULTS=0
	$(model) zk TOLD -DBUG=9 -DPERMITS -DN=3 -DLIMIT=2 -DFAULTS=0
	$(model) supervise holds -DFAULTS=1
	$(model) supervise holds -DFAULTS=2 -DFOREVER
	$(model) supervise RELEASE -DFAULTS=1 -DBUG=1
	$(model) supervise OWN_END -DBUG=2 -DFOREVER
	$(model) supervise EXCLUSION -DFAULTS=1 -DBUG=3
	$(model) supervise EXCLUSION -DFAULTS=1 -DBUG=4
	$(model) supervise EXCLUSION -DFAULTS=1 -DBUG=5
	$(model) supervise EXCLUSION -DFAULTS=1 -DBUG=6
	$(model) supervise OWN_END -DBUG=7 -DFOREVER

model-full: export MODEL_MEMORY = 3000
model-full: export MODEL_SECONDS = 1800
model-full: export MODEL_OPTIMIZE = -O2
model-full:
	$(model) redis holds -DFAULTS=1
	$(model) redis holds -DFAULTS=1 -DKINDS=2 -DPATIENCE=2
	$(model) redis holds -DFAULTS=2 -DKINDS=2
	$(model) redis holds -DFAULTS=1 -DPROGRESS
	$(model) redis holds -DN=4 -DFAULTS=0
	$(model) etcd holds
	$(model) etcd holds -DELECTIONS=0 -DFREEZES=1
	$(model) etcd holds -DPROGRESS -DNTH=1
	$(model) etcd holds -DFAULTS=2 -DELECTIONS=0 -DNTH=1
	$(model) etcd holds -DFAULTS=0 -DELECTIONS=2 -DLEASE=4 -DPLACE=3
	$(model) etcd holds -DN=3 -DFAULTS=0 -DELECTIONS=0 -DNTH=1
	$(model) zk holds -DN=3 -DFAULTS=2 -DFREEZES=1
	$(model) zk holds -DPERMITS -DN=3 -DFAULTS=2
	$(model) zk holds -DPERMITS -DN=3 -DLIMIT=2 -DFREEZES=1
	$(model) zk holds -DPERMITS -DFAULTS=2 -DFREEZES=1 -DCURATORS=1
	$(model) supervise holds -DFAULTS=3
	$(model) supervise holds -DFAULTS=3 -DWAIT_TREE
	$(model) supervise holds -DFAULTS=4 -DFOREVER
	$(model) supervise holds -DFAULTS=4 -DFOREVER -DWAIT_TREE
