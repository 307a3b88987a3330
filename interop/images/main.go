// Command images writes the container images that upstream's conformance suite starts, under the names the suite
// uses, as archives that `karve image import` and `ctr images import` read. The content is built here from pinned
// sources and installed Debian packages: nothing is pulled. images.sh prepares its inputs.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// inputs are the places the content comes from.
type inputs struct {
	programs string // what build.sh made
	upstream string // the k8s.io/kubernetes module, for the data files that the suite's images serve
	busybox  string // a static busybox whose shell prefers PATH to its own applets
}

const testImages = "registry.k8s.io/e2e-test-images/"

// archives is every archive by name, in the order of use. An archive may hold several images that share layers.
var archives = []struct {
	name   string
	images func(inputs) ([]Image, error)
}{
	{"pause", pause},
	{"busybox", busybox},
	{"agnhost", agnhost},
	{"kitten", kitten},
	{"nonewprivs", nonewprivs},
	{"sample-apiserver", sampleAPIServer},
	{"etcd", etcd},
}

func main() {
	var in inputs
	flag.StringVar(&in.programs, "programs", "", "directory of the programs that build.sh made")
	flag.StringVar(&in.upstream, "upstream", "", "directory of the k8s.io/kubernetes module")
	flag.StringVar(&in.busybox, "busybox", "", "static busybox")
	out := flag.String("out", "", "directory for the archives")
	list := flag.Bool("list", false, "print the names of the archives and end")
	flag.Parse()
	for _, archive := range archives {
		if *list {
			fmt.Println(archive.name)
		}
	}
	for _, name := range flag.Args() {
		if err := build(name, in, *out); err != nil {
			fmt.Fprintf(os.Stderr, "images: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func build(name string, in inputs, out string) error {
	for _, archive := range archives {
		if archive.name != name {
			continue
		}
		images, err := archive.images(in)
		if err != nil {
			return err
		}
		return writeArchive(filepath.Join(out, name+".tar"), images)
	}
	return fmt.Errorf("no such archive")
}

func pause(in inputs) ([]Image, error) {
	tree := Tree{}
	tree.File("/pause", in.programs+"/pause", 0o755)
	return []Image{{Name: "registry.k8s.io/pause:3.10.2", Layers: []Tree{tree}, Entrypoint: []string{"/pause"}}}, nil
}

func busybox(in inputs) ([]Image, error) {
	tree := base()
	err := tree.Applets(in.busybox)
	return []Image{{Name: testImages + "busybox:1.37.0-1", Layers: []Tree{tree}, Cmd: []string{"sh"}}}, err
}

func agnhost(in inputs) ([]Image, error) {
	tools, err := debianTools(in)
	if err != nil {
		return nil, err
	}
	server := Tree{}
	server.File("/agnhost", in.programs+"/agnhost", 0o755)
	server.Link("/agnhost-2", "agnhost")
	server.Dir("/uploads", 0o755)
	// A StatefulSet's readiness probe fetches the certificate as its page.
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		server.File("/"+name, in.upstream+"/test/images/agnhost/porter/"+name, 0o644)
	}
	run := func(name, command string, more ...Tree) Image {
		return Image{
			Name:       testImages + name,
			Layers:     append([]Tree{tools, server}, more...),
			Entrypoint: []string{"/agnhost"},
			Cmd:        []string{command},
		}
	}
	return []Image{
		run("agnhost:2.63.0", "pause"),
		run("agnhost:2.55", "pause"),
		run("nautilus:1.8", "test-webserver", page(in, "nautilus")),
		// Its pods only need to exist: no test sends it a request.
		run("nginx:1.15-4", "test-webserver"),
		{Name: testImages + "glibc-dns-testing:2.0.0", Layers: []Tree{tools}, Cmd: []string{"sh"}},
	}, nil
}

// kitten is mounted as a volume, never started; a test reads the two text files from it.
func kitten(in inputs) ([]Image, error) {
	tree := page(in, "kitten")
	tree.Text("/etc/os-release", "NAME=\"Alpine Linux\"\nID=alpine\n")
	return []Image{{Name: testImages + "kitten:1.8", Layers: []Tree{tree}}}, nil
}

func nonewprivs(in inputs) ([]Image, error) {
	tree := base()
	err := tree.Applets(in.busybox)
	tree.File("/usr/local/bin/nnp", in.programs+"/nonewprivs", setuid|0o755)
	return []Image{{Name: testImages + "nonewprivs:1.4", Layers: []Tree{tree}, Cmd: []string{"nnp"}}}, err
}

func sampleAPIServer(in inputs) ([]Image, error) {
	tree := base()
	tree.File("/sample-apiserver", in.programs+"/sample-apiserver", 0o755)
	return []Image{{
		Name:       testImages + "sample-apiserver:1.29.2",
		Layers:     []Tree{tree},
		Entrypoint: []string{"/sample-apiserver"},
	}}, nil
}

func etcd(in inputs) ([]Image, error) {
	tree := base()
	tree.File("/usr/local/bin/etcd", in.programs+"/etcd", 0o755)
	return []Image{{Name: "registry.k8s.io/etcd:3.6.8-0", Layers: []Tree{tree}}}, nil
}

// base is what programs expect to find in any root.
func base() Tree {
	tree := Tree{}
	tree.Dir("/tmp", 0o1777)
	tree.Dir("/root", 0o700)
	for _, name := range []string{"bin", "dev", "etc", "proc", "run", "sbin", "sys", "usr/bin", "var/tmp"} {
		tree.Dir("/"+name, 0o755)
	}
	tree.Text("/etc/passwd", strings.Join([]string{
		"root:x:0:0:root:/root:/bin/sh",
		"daemon:x:1:1:daemon:/usr/sbin:/bin/false",
		"bin:x:2:2:bin:/bin:/bin/false",
		"nobody:x:65534:65534:nobody:/:/bin/false",
		"",
	}, "\n"))
	tree.Text("/etc/group", "root:x:0:\ndaemon:x:1:\nbin:x:2:\nmail:x:8:\nnogroup:x:65534:\n")
	tree.Text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
	return tree
}

// debianTools is a root with the network tools that tests call inside agnhost: curl, dig and getent as such, nc in
// OpenBSD's variant. Its shell is busybox's, as in upstream's image.
func debianTools(in inputs) (Tree, error) {
	tree := base()
	for _, tool := range []struct{ at, name, debianPackage string }{
		{"/bin/bash", "bash", "bash"},
		{"/sbin/ip", "ip", "iproute2"},
		{"/usr/bin/curl", "curl", "curl"},
		{"/usr/bin/dig", "dig", "bind9-dnsutils"},
		{"/usr/bin/getent", "getent", "libc-bin"},
		{"/usr/bin/nc", "nc.openbsd", "netcat-openbsd"},
	} {
		if err := tree.Program(tool.at, tool.name, tool.debianPackage); err != nil {
			return nil, err
		}
	}
	// Tests of supplementary groups run as this user.
	tree["/etc/passwd"] = appended(tree["/etc/passwd"], "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n")
	tree["/etc/group"] = appended(tree["/etc/group"],
		"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
	return tree, tree.Applets(in.busybox)
}

// page is the pair of files that one of the demonstration servers shows.
func page(in inputs, name string) Tree {
	tree := Tree{}
	for _, file := range []string{name + ".jpg", "data.json"} {
		tree.File("/"+file, in.upstream+"/test/images/"+name+"/html/"+file, 0o644)
	}
	return tree
}

func appended(e entry, text string) entry {
	e.text += text
	return e
}
