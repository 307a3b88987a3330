package main

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// setuid is the tar header's bit; os.ModeSetuid is Go's own and does not travel.
const setuid = 0o4000

// A Tree is the content of one layer, by absolute path. Parents are made as needed; everything belongs to root.
type Tree map[string]entry

type entry struct {
	kind   byte
	mode   int64
	target string // of a symbolic link
	source string // a file on this machine to copy
	text   string // or the content itself
}

func (t Tree) Dir(at string, mode int64) {
	t.put(at, entry{kind: tar.TypeDir, mode: mode})
}

func (t Tree) Text(at, text string) {
	t.put(at, entry{kind: tar.TypeReg, mode: 0o644, text: text})
}

func (t Tree) File(at, source string, mode int64) {
	t.put(at, entry{kind: tar.TypeReg, mode: mode, source: source})
}

func (t Tree) Link(at, target string) {
	t.put(at, entry{kind: tar.TypeSymlink, mode: 0o777, target: target})
}

// Program copies an installed program to at, and its shared libraries to where its loader looks for them.
func (t Tree) Program(at, name, debianPackage string) error {
	found, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s is not installed; it comes with the Debian package %s", name, debianPackage)
	}
	if found, err = filepath.EvalSymlinks(found); err != nil {
		return err
	}
	t.File(at, found, 0o755)
	out, err := exec.Command("ldd", found).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ldd %s: %w: %s", found, err, out)
	}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			t.File(path.Clean(word), word, 0o755)
		}
	}
	return nil
}

// Applets adds busybox and a link in /bin for each applet that no other program of the tree provides.
func (t Tree) Applets(busybox string) error {
	out, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", busybox, err)
	}
	taken := map[string]bool{"busybox": true}
	for at := range t {
		taken[path.Base(at)] = true
	}
	for _, applet := range strings.Fields(string(out)) {
		if !taken[applet] {
			t.Link("/bin/"+applet, "/bin/busybox")
		}
	}
	t.File("/bin/busybox", busybox, 0o755)
	return nil
}

// Write writes the tree as a tar that depends on nothing but the content, so that equal trees share a digest.
func (t Tree) Write(w io.Writer) error {
	paths := make([]string, 0, len(t))
	for at := range t {
		paths = append(paths, at)
	}
	sort.Strings(paths)
	layer := tar.NewWriter(w)
	for _, at := range paths {
		if err := t[at].write(layer, strings.TrimPrefix(at, "/")); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return layer.Close()
}

func (t Tree) put(at string, e entry) {
	for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
		if _, ok := t[dir]; !ok {
			t[dir] = entry{kind: tar.TypeDir, mode: 0o755}
		}
	}
	t[at] = e
}

func (e entry) write(layer *tar.Writer, name string) error {
	header := &tar.Header{Typeflag: e.kind, Name: name, Linkname: e.target, Mode: e.mode, ModTime: time.Unix(0, 0)}
	if e.kind == tar.TypeDir {
		header.Name += "/"
	}
	if e.source == "" {
		header.Size = int64(len(e.text))
		if err := layer.WriteHeader(header); err != nil {
			return err
		}
		_, err := io.WriteString(layer, e.text)
		return err
	}
	file, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := layer.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(layer, file)
	return err
}
