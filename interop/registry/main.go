// Command registry serves image archives to container runtimes by the OCI distribution protocol, read only and without
// TLS, for tests whose images must be pulled. It answers for every registry's name: the host part of an image's name is
// ignored, so that a runtime's mirror setting can send all of them here.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on; port 0 takes a free one")
	flag.Parse()
	images := &content{tags: map[string]string{}, blobs: map[string]blob{}}
	for _, path := range flag.Args() {
		if err := images.add(path); err != nil {
			fmt.Fprintf(os.Stderr, "registry: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintf(os.Stderr, "registry: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	err = http.Serve(listener, images)
	fmt.Fprintf(os.Stderr, "registry: %v\n", err)
	os.Exit(1)
}

// ServeHTTP answers /v2/, /v2/<repository>/manifests/<tag or digest> and /v2/<repository>/blobs/<digest>.
func (c *content) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	if !ok {
		refuse(w, http.StatusNotFound, "UNSUPPORTED")
		return
	}
	if path == "" {
		return
	}
	digest := c.find(path)
	found, ok := c.blobs[digest]
	if !ok {
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN")
		return
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Type", found.mediaType)
	http.ServeContent(w, r, "", time.Time{}, found.reader())
}

// find is the digest that a path asks for, or "" when there is none.
func (c *content) find(path string) string {
	if at := strings.LastIndex(path, "/manifests/"); at >= 0 {
		reference := path[at+len("/manifests/"):]
		if strings.HasPrefix(reference, "sha256:") {
			return reference
		}
		return c.tags[path[:at]+":"+reference]
	}
	if at := strings.LastIndex(path, "/blobs/"); at >= 0 {
		return path[at+len("/blobs/"):]
	}
	return ""
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"this registry serves only what it was started with"}]}`, code)
}
