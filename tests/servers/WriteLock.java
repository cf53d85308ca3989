// Goal of this file: one client of ZooKeeper's own lock recipe.  It takes the lock at a path, says
// "held", and gives it back when its input ends:  java WriteLock HOST:PORT PATH

import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;

public class WriteLock {
    public static void main(String[] args) throws Exception {
        ZooKeeper zk = new ZooKeeper(args[0], 10000, event -> { });
        org.apache.zookeeper.recipes.lock.WriteLock lock =
            new org.apache.zookeeper.recipes.lock.WriteLock(zk, args[1], ZooDefs.Ids.OPEN_ACL_UNSAFE, new LockListener() {
                @Override
                public void lockAcquired() {
                    System.out.println("held");
                }

                @Override
                public void lockReleased() {
                }
            });

        lock.lock();
        System.in.read();
        lock.unlock();
        zk.close();
    }
}
