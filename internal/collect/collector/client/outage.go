package client

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Outage implements Interface. The condition Available of the APIService has the time of its last change.
func (c *Client) Outage(ctx context.Context, groupVersion string) (apiservice.Outage, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := c.server.Get().AbsPath(apiservice.PathOf(groupVersion)).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return apiservice.Outage{}, nil
	}
	var outage apiservice.Outage
	if err == nil {
		outage, err = apiservice.Read(body)
	}
	if err != nil {
		return apiservice.Outage{}, fmt.Errorf("read APIService %s: %w", apiservice.NameOf(groupVersion), err)
	}
	return outage, nil
}

// Created implements Interface.
func (c *Client) Created(ctx context.Context, observed ownership.Object) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ref := RefOf(observed)
	objects, err := c.objects(ref)
	if err != nil {
		return time.Time{}, err
	}
	meta, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, aboutObject(ref, err)
	}
	if ownership.UID(meta.UID) != observed.UID {
		return time.Time{}, fmt.Errorf("%s was replaced: its UID is %s", ref, meta.UID)
	}
	return meta.CreationTimestamp.Time, nil
}
