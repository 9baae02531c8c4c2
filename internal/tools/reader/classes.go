package reader

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

const (
	// classPage bounds one page of volumes or claims, and mostClassPages the pages that are read of each.
	classPage      = 500
	mostClassPages = 40
)

var errTooManyVolumes = errors.New("there are too many volumes or volume claims")

// classUsers reads which volumes and volume claims name a VolumeAttributesClass.
func classUsers(ctx context.Context, client kubernetes.Interface, class string) ([]inventory.ClassUser, error) {
	var users []inventory.ClassUser
	add := func(kind string, o metav1.Object, classes []string) {
		if slices.Contains(classes, class) {
			users = append(users, inventory.ClassUser{
				UID: ownership.UID(o.GetUID()), Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Deleting: o.GetDeletionTimestamp() != nil,
			})
		}
	}
	err := eachPage(func(page metav1.ListOptions) (string, error) {
		list, err := client.CoreV1().PersistentVolumes().List(ctx, page)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			add("PersistentVolume", &list.Items[i], inuse.ClassesOfVolume(&list.Items[i]))
		}
		return list.Continue, nil
	})
	if err != nil {
		return nil, err
	}
	err = eachPage(func(page metav1.ListOptions) (string, error) {
		list, err := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, page)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			add("PersistentVolumeClaim", &list.Items[i], inuse.ClassesOfClaim(&list.Items[i]))
		}
		return list.Continue, nil
	})
	return users, err
}

// eachPage reads a list of at most mostClassPages pages.
func eachPage(read func(metav1.ListOptions) (next string, err error)) error {
	options := metav1.ListOptions{Limit: classPage}
	for range mostClassPages {
		next, err := read(options)
		if err != nil || next == "" {
			return err
		}
		options.Continue = next
	}
	return errTooManyVolumes
}
