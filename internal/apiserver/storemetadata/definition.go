package storemetadata

import (
	"bytes"
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/coppice-dev/coppice/internal/collect/wire"
)

// The numbers of the fields that definitionOf reads. They are the same in v1 and in v1beta1.
const (
	specOfDefinition   = 2
	statusOfDefinition = 3
	scopeOfSpec        = 4
	versionsOfSpec     = 7
	nameOfVersion      = 1
	servedOfVersion    = 2
	conditionsOfStatus = 1
	typeOfCondition    = 1
	statusOfCondition  = 2
)

// definition is the scope and the served versions of a CustomResourceDefinition.
type definition struct {
	namespaced bool
	versions   []string
}

// definitionOf returns the definition in a stored CustomResourceDefinition; false if it is not
// established or cannot be read. In the second case, the API returns the error to clients of the
// resource.
func definitionOf(value []byte) (definition, bool) {
	message, isProtobuf, err := wire.Object(value)
	switch {
	case err != nil:
		return definition{}, false
	case isProtobuf:
		return definitionFromProtobuf(message)
	}
	return definitionFromJSON(value)
}

// definitionFromProtobuf skips the schemas, which are most of a definition.
func definitionFromProtobuf(message []byte) (found definition, established bool) {
	err := wire.Each(message, func(number int32, value []byte, _ uint64) error {
		switch number {
		case specOfDefinition:
			return found.readSpec(value)
		case statusOfDefinition:
			return wire.Each(value, func(number int32, value []byte, _ uint64) error {
				if number != conditionsOfStatus {
					return nil
				}
				is, err := isEstablished(value)
				established = established || is
				return err
			})
		default:
			return nil
		}
	})
	if err != nil || !established {
		return definition{}, false
	}
	return found, true
}

func (d *definition) readSpec(spec []byte) error {
	return wire.Each(spec, func(number int32, value []byte, _ uint64) error {
		switch number {
		case scopeOfSpec:
			d.namespaced = string(value) == string(apiextensionsv1.NamespaceScoped)
		case versionsOfSpec:
			name, served := "", false
			err := wire.Each(value, func(number int32, value []byte, varint uint64) error {
				switch number {
				case nameOfVersion:
					name = string(value)
				case servedOfVersion:
					served = varint != 0
				}
				return nil
			})
			if err != nil {
				return err
			}
			if served {
				d.versions = append(d.versions, name)
			}
		}
		return nil
	})
}

func isEstablished(condition []byte) (bool, error) {
	is, isTrue := false, false
	err := wire.Each(condition, func(number int32, value []byte, _ uint64) error {
		switch number {
		case typeOfCondition:
			is = string(value) == string(apiextensionsv1.Established)
		case statusOfCondition:
			isTrue = string(value) == string(apiextensionsv1.ConditionTrue)
		}
		return nil
	})
	return is && isTrue, err
}

// establishedInJSON is in the JSON of every definition that is served. It cannot match in a
// description, where quotes are escaped.
const establishedInJSON = `"type":"Established","status":"True"`

// definitionFromJSON reads a definition that an earlier version of Coppice has stored.
func definitionFromJSON(value []byte) (definition, bool) {
	var stored struct {
		Spec struct {
			Scope    apiextensionsv1.ResourceScope `json:"scope"`
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
			} `json:"versions"`
		} `json:"spec"`
		Status struct {
			Conditions []struct {
				Type   apiextensionsv1.CustomResourceDefinitionConditionType `json:"type"`
				Status apiextensionsv1.ConditionStatus                       `json:"status"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if !bytes.Contains(value, []byte(establishedInJSON)) {
		return definition{}, false // not served yet: parsing is not necessary
	}
	if json.Unmarshal(value, &stored) != nil {
		return definition{}, false
	}
	found := definition{namespaced: stored.Spec.Scope == apiextensionsv1.NamespaceScoped}
	for _, version := range stored.Spec.Versions {
		if version.Served {
			found.versions = append(found.versions, version.Name)
		}
	}
	for _, condition := range stored.Status.Conditions {
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return found, true
		}
	}
	return definition{}, false
}
