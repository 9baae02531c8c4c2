package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

const (
	// apiServicesPath is the collection of the APIServices.
	apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices/"
	// firstCheck bounds the time from the creation of an APIService to the first check of its service.
	firstCheck = 30 * time.Second
	// maxWhy bounds the reason of an outage, in bytes.
	maxWhy = 256
)

// APIServiceOf returns the name of the APIService of a group version: "v1.metrics.example.com".
func APIServiceOf(groupVersion string) string {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		return groupVersion
	}
	return gv.Version + "." + gv.Group
}

// apiService is the relevant part of an APIService.
type apiService struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions []struct {
			Type               string      `json:"type"`
			Status             string      `json:"status"`
			LastTransitionTime metav1.Time `json:"lastTransitionTime"`
			Message            string      `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

// Outage implements Interface. The condition Available of the APIService has the time of its last change.
func (c *Client) Outage(ctx context.Context, groupVersion string) (Outage, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := c.server.Get().AbsPath(apiServicesPath+APIServiceOf(groupVersion)).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return Outage{}, nil
	}
	var s apiService
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		return Outage{}, fmt.Errorf("read APIService %s: %w", APIServiceOf(groupVersion), err)
	}
	return s.outage(), nil
}

func (s *apiService) outage() Outage {
	for _, c := range s.Status.Conditions {
		if c.Type == "Available" && c.Status == "False" && !c.LastTransitionTime.IsZero() {
			return Outage{
				Since:   c.LastTransitionTime.Time,
				NeverUp: !c.LastTransitionTime.After(s.Metadata.CreationTimestamp.Add(firstCheck)),
				Why:     ownership.Excerpt(c.Message, maxWhy),
			}
		}
	}
	return Outage{}
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
