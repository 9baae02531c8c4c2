package assets

import (
	"os"

	"golang.org/x/sys/windows"
)

// watchParent returns a function that returns when the parent has ended. Windows does not give a process another
// parent, but may reuse its id, so the handle is opened first.
func watchParent() func() {
	handle, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(os.Getppid()))
	if err != nil {
		return func() {} // the parent has ended already
	}
	return func() {
		defer func() { _ = windows.CloseHandle(handle) }()
		_, _ = windows.WaitForSingleObject(handle, windows.INFINITE)
	}
}
