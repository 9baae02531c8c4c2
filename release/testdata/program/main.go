// Command program stands for Coppice in the tests of the packing: it tells by which name it was
// called, and with which arguments.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	fmt.Println(strings.Join(append([]string{name}, os.Args[1:]...), " "))
}
