package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Supported volumes are directories of the node that are initially empty (emptyDir), existing paths
// of the host (hostPath), and files made of API objects (files.go). A pod with any other volume
// does not start.

// prepare creates the volumes of a pod. It may be called again.
func (s *store) prepare(of *corev1.Pod, m *references) error {
	for i := range of.Spec.Volumes {
		if err := s.prepareVolume(of, &of.Spec.Volumes[i], m); err != nil {
			return fmt.Errorf("volume %q: %w", of.Spec.Volumes[i].Name, err)
		}
	}
	return nil
}

func (s *store) prepareVolume(of *corev1.Pod, v *corev1.Volume, m *references) error {
	switch {
	case isFiles(&v.VolumeSource):
		_, err := s.writeFiles(of, v, m)
		return err
	case v.EmptyDir != nil:
		if v.EmptyDir.Medium != corev1.StorageMediumDefault {
			return fmt.Errorf("emptyDir with medium %s is not supported by this node", v.EmptyDir.Medium)
		}
		return makeEmptyDir(s.volume(of.UID, v.Name), groupOf(of))
	case v.HostPath != nil:
		return checkHostPath(v.HostPath)
	}
	return fmt.Errorf("%s volumes are not supported by this node", kindOf(&v.VolumeSource))
}

// writeFiles writes the files of a volume of API objects, and reports whether they have changed.
func (s *store) writeFiles(of *corev1.Pod, v *corev1.Volume, m *references) (changed bool, err error) {
	files, err := filesOf(of, &v.VolumeSource, m)
	if err != nil {
		return false, err
	}
	return write(s.volume(of.UID, v.Name), files, ownersOf(of))
}

// ownersOf returns the owners of the files in a pod's volumes: the pod's fsGroup, and the user of
// its containers if all of them specify the same one.
func ownersOf(of *corev1.Pod) owners {
	o := owners{group: groupOf(of)}
	for _, c := range slices.Concat(of.Spec.InitContainers, of.Spec.Containers) {
		id := userOf(of, &c).id
		if id == nil || o.user != nil && *o.user != *id {
			return owners{group: o.group}
		}
		o.user = id
	}
	return o
}

// groupOf returns the fsGroup of a pod, or nil.
func groupOf(of *corev1.Pod) *int64 {
	if of.Spec.SecurityContext == nil {
		return nil
	}
	return of.Spec.SecurityContext.FSGroup
}

// kindOf returns the API's name of a volume type or of a volume source. v points to a struct with
// one field set.
func kindOf(v any) string {
	value := reflect.ValueOf(v).Elem()
	for i := range value.NumField() {
		if field := value.Field(i); field.Kind() == reflect.Pointer && !field.IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "unknown"
}

// makeEmptyDir creates a directory that any user in the pod may write to. Other users cannot access
// the directories above it.
func makeEmptyDir(dir string, group *int64) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); errors.Is(err, os.ErrExist) {
		return nil // from an earlier sandbox of the pod: its contents are kept
	} else if err != nil {
		return err
	}
	return give(dir, 0o777, os.ModeSetgid, owners{group: group})
}

// checkHostPath checks that the host path has the required type. It creates the path if the type says so.
func checkHostPath(v *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if v.Type != nil {
		kind = *v.Type
	}
	name := map[corev1.HostPathType]string{
		corev1.HostPathDirectoryOrCreate: "directory", corev1.HostPathDirectory: "directory",
		corev1.HostPathFileOrCreate: "file", corev1.HostPathFile: "file", corev1.HostPathSocket: "socket file",
		corev1.HostPathCharDev: "character device", corev1.HostPathBlockDev: "block device",
	}[kind]
	switch {
	case kind == corev1.HostPathUnset:
		return nil
	case name == "":
		return fmt.Errorf("hostPath of type %s is not supported by this node", kind)
	}
	info, err := os.Stat(v.Path)
	if errors.Is(err, os.ErrNotExist) {
		if err = createHostPath(v.Path, kind); err == nil {
			info, err = os.Stat(v.Path)
		}
	}
	if err != nil || nameOf(info.Mode()) != name {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", v.Path, name)
	}
	return nil
}

// createHostPath creates a path that is missing if its type allows that.
func createHostPath(path string, kind corev1.HostPathType) error {
	switch kind {
	case corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(path, 0o755)
	case corev1.HostPathFileOrCreate: // the directory must be there
		file, err := os.OpenFile(path, os.O_CREATE|syscall.O_NONBLOCK, 0o644) // a pipe that appears there would block
		if err != nil {
			return err
		}
		return file.Close()
	case corev1.HostPathUnset, corev1.HostPathDirectory, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev:
	}
	return os.ErrNotExist
}

// nameOf returns the kind of a file for the check of a host path.
func nameOf(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode.IsRegular():
		return "file"
	case mode&os.ModeSocket != 0:
		return "socket file"
	case mode&os.ModeCharDevice != 0:
		return "character device"
	case mode&os.ModeDevice != 0:
		return "block device"
	}
	return ""
}

// mounts returns the mounts of a container with these variables.
func (s *store) mounts(of *corev1.Pod, c *corev1.Container, variables []variable) ([]*runtimeapi.Mount, error) {
	var all []*runtimeapi.Mount
	for i, m := range c.VolumeMounts {
		mount, err := s.mount(of, c, i, variables)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", m.Name, err)
		}
		if recursive := m.RecursiveReadOnly; recursive != nil && *recursive == corev1.RecursiveReadOnlyEnabled {
			return nil, fmt.Errorf("volume %q: recursiveReadOnly: Enabled is not supported by this node", m.Name)
		}
		if m.MountPropagation != nil {
			switch *m.MountPropagation {
			case corev1.MountPropagationHostToContainer:
				mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
			case corev1.MountPropagationBidirectional:
				mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
			case corev1.MountPropagationNone:
			}
		}
		all = append(all, mount)
	}
	if len(c.VolumeDevices) > 0 {
		return nil, errors.New("volumeDevices are not supported by this node")
	}
	return all, nil
}

// mount returns the mount of a volume, without mount propagation.
func (s *store) mount(of *corev1.Pod, c *corev1.Container, index int, variables []variable) (*runtimeapi.Mount, error) {
	m := &c.VolumeMounts[index]
	at := slices.IndexFunc(of.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
	if at < 0 {
		return nil, errors.New("it is not one of the pod's")
	}
	v, host := &of.Spec.Volumes[at], s.volume(of.UID, m.Name)
	if v.HostPath != nil {
		host = v.HostPath.Path
	}
	mount := &runtimeapi.Mount{ContainerPath: m.MountPath, HostPath: host, Readonly: m.ReadOnly || isFiles(&v.VolumeSource)}
	part, err := subPathOf(m, variables)
	switch {
	case err != nil:
		return nil, err
	case part == "":
	case isFiles(&v.VolumeSource): // no container can write there
		mount.HostPath = filepath.Join(host, part)
		if _, err := os.Stat(mount.HostPath); err != nil {
			return nil, fmt.Errorf("it has no %q", part)
		}
	default:
		if mount.HostPath, err = s.bindPart(of.UID, c.Name, index, host, part); err != nil {
			return nil, hiddenError{fmt.Sprintf("failed to prepare subPath for volumeMount %q of container %q", m.Name, c.Name), err}
		}
	}
	return mount, nil
}

// hiddenError is an error whose cause is for the log only: the cause may reveal files of the host
// to the author of a pod.
type hiddenError struct {
	text  string
	cause error
}

// Error implements error.
func (e hiddenError) Error() string { return e.text }
