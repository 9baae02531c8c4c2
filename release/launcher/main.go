// Command launcher stands for etcd and kubectl in the archives that test suites download: it runs
// the program that lies beside it as kube-apiserver, which is Coppice, under its own name.
//
// Those who unpack such an archive (envtest, setup-envtest) take regular files only, so that links
// would be lost, and three copies would be three times the download.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// coppice is the file that is all three programs, and tells by the name it is called by.
const coppice = "kube-apiserver"

func main() {
	own, err := os.Executable()
	if err == nil {
		err = run(beside(own, runtime.GOOS), os.Args)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	os.Exit(1)
}

// beside returns the path of Coppice, beside a program.
func beside(program, system string) string {
	name := coppice
	if system == "windows" {
		name += ".exe"
	}
	return filepath.Join(filepath.Dir(program), name)
}
