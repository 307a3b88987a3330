// Command etcd is the etcd server of the version pinned in go.mod, with all of its flags.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
