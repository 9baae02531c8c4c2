package resource

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Limits of the status that drivers report for allocated devices.
const (
	maxConditions      = 8
	maxDeviceData      = 10 << 10
	maxInterfaceName   = 256
	maxHardwareAddress = 128
	maxIPs             = 16
)

// deviceID identifies an allocated device, or a share of one.
type deviceID struct{ Driver, Pool, Device, ShareID string }

// allocatedDevices returns the devices that are allocated to a claim.
func allocatedDevices(allocation *resourcev1.AllocationResult) map[deviceID]bool {
	devices := map[deviceID]bool{}
	if allocation != nil {
		for _, r := range allocation.Devices.Results {
			devices[deviceID{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, ""))}] = true
		}
	}
	return devices
}

func idOf(d resourcev1.AllocatedDeviceStatus) deviceID {
	return deviceID{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
}

// prepareClaimStatus drops the status of devices that are no longer allocated.
func prepareClaimStatus(c, old *resourcev1.ResourceClaim) {
	before, now := allocatedDevices(old.Status.Allocation), allocatedDevices(c.Status.Allocation)
	var kept []resourcev1.AllocatedDeviceStatus
	for _, d := range c.Status.Devices {
		if id := idOf(d); !before[id] || now[id] {
			kept = append(kept, d)
		}
	}
	c.Status.Devices = kept
	if c.Status.Allocation == nil {
		return
	}
	// The pointer may be shared with the object that was sent.
	c.Status.Allocation = c.Status.Allocation.DeepCopy()
	for i := range c.Status.Allocation.Devices.Results {
		c.Status.Allocation.Devices.Results[i].SkipNodeOperations = nil
	}
}

// validateClaimStatus checks a changed status. An allocation is set and removed, never changed.
func validateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	status, reserved := field.NewPath("status"), field.NewPath("status", "reservedFor")
	errs := validateMap(c.Status.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, reserved,
		func(r resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID }, validateConsumer)
	allocated := allocatedDevices(c.Status.Allocation)
	errs = append(errs, validateSet(c.Status.Devices, len(c.Status.Devices), status.Child("devices"), idOf,
		func(d *resourcev1.AllocatedDeviceStatus, at *field.Path) field.ErrorList {
			return validateDeviceStatus(d, at, allocated)
		})...)
	switch {
	case len(c.Status.ReservedFor) > 0 && c.Status.Allocation == nil:
		errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
	case c.DeletionTimestamp != nil && !sets.New(old.Status.ReservedFor...).HasAll(c.Status.ReservedFor...):
		errs = append(errs, field.Forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	allocation := status.Child("allocation")
	switch {
	case c.Status.Allocation == nil:
	case old.Status.Allocation != nil:
		errs = append(errs, validate.NotModified(c.Status.Allocation, old.Status.Allocation, allocation)...)
	default:
		errs = append(errs, validateAllocation(c.Status.Allocation, requestNamesOf(&c.Spec.Devices), allocation)...)
	}
	return errs
}

func validateConsumer(r *resourcev1.ResourceClaimConsumerReference, at *field.Path) field.ErrorList {
	return slices.Concat(
		validate.Required(r.Resource, at.Child("resource")),
		validate.Required(r.Name, at.Child("name")),
		validate.Required(r.UID, at.Child("uid")))
}

func validateAllocation(a *resourcev1.AllocationResult, names requestNames, at *field.Path) field.ErrorList {
	devices := at.Child("devices")
	errs := validateList(a.Devices.Results, resourcev1.AllocationResultsMaxSize, devices.Child("results"),
		func(r *resourcev1.DeviceRequestAllocationResult, at *field.Path) field.ErrorList {
			return slices.Concat(
				names.validateReference(r.Request, at.Child("request")),
				validateDriver(r.Driver, at.Child("driver")),
				declared(r.Pool, at.Child("pool"), validate.PoolName),
				validateLabel(r.Device, at.Child("device")),
				validateBinding(r.BindingConditions, r.BindingFailureConditions, at),
				validateShare((*string)(r.ShareID), at.Child("shareID")),
				validate.Each(r.Tolerations, at.Child("tolerations"), validateToleration))
		})
	// The configuration comes from the claim and from its class.
	errs = append(errs, validateList(a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, devices.Child("config"),
		func(c *resourcev1.DeviceAllocationConfiguration, at *field.Path) field.ErrorList {
			return slices.Concat(
				validate.OneOf(c.Source, at.Child("source"), resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass),
				names.validateReferences(c.Requests, at.Child("requests")),
				validateConfig(&c.DeviceConfiguration, at, false))
		})...)
	if a.NodeSelector != nil {
		errs = append(errs, podspec.ValidateNodeSelector(a.NodeSelector, at.Child("nodeSelector"))...)
	}
	return errs
}

// validateShare checks the identity of one of the shares of a device.
func validateShare(uid *string, at *field.Path) field.ErrorList {
	return validate.UUID(uid, at)
}

// validateBinding checks the conditions for which a scheduler waits before it binds a pod to the device's node, and the
// conditions that make it give up.
func validateBinding(conditions, failures []string, at *field.Path) field.ErrorList {
	success, failure := at.Child("bindingConditions"), at.Child("bindingFailureConditions")
	label := func(c *string, at *field.Path) field.ErrorList { return metav1validation.ValidateLabelName(*c, at) }
	self := func(c string) string { return c }
	errs := append(
		validateSet(conditions, resourcev1.BindingConditionsMaxSize, success, self, label),
		validateSet(failures, resourcev1.BindingFailureConditionsMaxSize, failure, self, label)...)
	known := sets.New(conditions...)
	for i, c := range failures {
		if known.Has(c) {
			errs = append(errs, field.Invalid(failure.Index(i), c, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	switch {
	case len(conditions) == 0 && len(failures) > 0:
		errs = append(errs, field.Invalid(success, conditions, "bindingConditions are required to use bindingFailureConditions"))
	case len(failures) == 0 && len(conditions) > 0:
		errs = append(errs, field.Invalid(failure, failures, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}

// validateDeviceStatus checks the status that a driver reports for a device.
func validateDeviceStatus(d *resourcev1.AllocatedDeviceStatus, at *field.Path, allocated map[deviceID]bool) field.ErrorList {
	errs := slices.Concat(
		podspec.ValidateDriverName(d.Driver, at.Child("driver")),
		validatePool(d.Pool, at.Child("pool")),
		validateLabel(d.Device, at.Child("device")),
		validateShare(d.ShareID, at.Child("shareID")))
	if id := idOf(*d); !allocated[id] {
		errs = append(errs, field.Invalid(at, id, "must be an allocated device in the claim"))
	}
	conditions := at.Child("conditions")
	errs = append(errs, validate.MaxItems(d.Conditions, conditions, maxConditions)...)
	errs = append(errs, metav1validation.ValidateConditions(d.Conditions, conditions)...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateObject(*d.Data, maxDeviceData, at.Child("data"))...)
	}
	if d.NetworkData != nil {
		errs = append(errs, validateNetwork(d.NetworkData, at.Child("networkData"))...)
	}
	return errs
}

func validateNetwork(n *resourcev1.NetworkDeviceData, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validate.MaxBytes(n.InterfaceName, at.Child("interfaceName"), maxInterfaceName)...)
	errs = append(errs, validate.MaxBytes(n.HardwareAddress, at.Child("hardwareAddress"), maxHardwareAddress)...)
	return append(errs, validateSet(n.IPs, maxIPs, at.Child("ips"), func(ip string) string { return ip },
		func(ip *string, at *field.Path) field.ErrorList {
			return validation.IsValidInterfaceAddress(at, *ip)
		})...)
}
