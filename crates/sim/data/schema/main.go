// Command schema prints the Go shape of the Kubernetes kinds that the simulator serves: field names, types,
// omitempty, pointers, and patch strategies, as JSON. The simulator decodes and encodes objects by it, as the
// real API server does by the Go types themselves.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	apps "k8s.io/api/apps/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	networking "k8s.io/api/networking/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// field is [type, Go type, flags, patch strategy, patch merge key, protobuf number]; trailing empty strings are left
// out. The number of a field that is inlined in JSON but not in protobuf is a path, such as 2/1.
type field []string

var types = map[string]map[string]field{}

// leaf types, by their own JSON form rather than by their Go fields.
var leaves = map[reflect.Type]string{
	reflect.TypeOf(resource.Quantity{}):    "quantity",
	reflect.TypeOf(meta.Time{}):            "time",
	reflect.TypeOf(meta.MicroTime{}):       "microtime",
	reflect.TypeOf(meta.FieldsV1{}):        "any",
	reflect.TypeOf(runtime.RawExtension{}): "any",
	reflect.TypeOf(intstr.IntOrString{}):   "intorstring",
}

func main() {
	kinds := map[string]string{}
	for gvk, object := range map[string]any{
		"v1/PersistentVolume":               core.PersistentVolume{},
		"v1/PersistentVolumeClaim":          core.PersistentVolumeClaim{},
		"v1/Pod":                            core.Pod{},
		"v1/Node":                           core.Node{},
		"v1/Namespace":                      core.Namespace{},
		"v1/Event":                          core.Event{},
		"v1/ServiceAccount":                 core.ServiceAccount{},
		"v1/ConfigMap":                      core.ConfigMap{},
		"v1/Secret":                         core.Secret{},
		"v1/Service":                        core.Service{},
		"v1/Endpoints":                      core.Endpoints{},
		"apps/v1/Deployment":                apps.Deployment{},
		"apps/v1/StatefulSet":               apps.StatefulSet{},
		"apps/v1/ReplicaSet":                apps.ReplicaSet{},
		"apps/v1/DaemonSet":                 apps.DaemonSet{},
		"v1/ReplicationController":          core.ReplicationController{},
		"autoscaling/v1/Scale":              autoscaling.Scale{},
		"batch/v1/Job":                      batch.Job{},
		"batch/v1/CronJob":                  batch.CronJob{},
		"networking.k8s.io/v1/Ingress":      networking.Ingress{},
		"discovery.k8s.io/v1/EndpointSlice": discovery.EndpointSlice{},
		"authorization.k8s.io/v1/SelfSubjectAccessReview": authorization.SelfSubjectAccessReview{},
		"authorization.k8s.io/v1/SelfSubjectRulesReview":  authorization.SelfSubjectRulesReview{},
		"events.k8s.io/v1/Event":                          events.Event{},
		"storage.k8s.io/v1/StorageClass":                  storage.StorageClass{},
		"storage.k8s.io/v1/VolumeAttributesClass":         storage.VolumeAttributesClass{},
		"storage.k8s.io/v1/CSIDriver":                     storage.CSIDriver{},
		"storage.k8s.io/v1/CSINode":                       storage.CSINode{},
		"storage.k8s.io/v1/CSIStorageCapacity":            storage.CSIStorageCapacity{},
		"storage.k8s.io/v1/VolumeAttachment":              storage.VolumeAttachment{},
		"coordination.k8s.io/v1/Lease":                    coordination.Lease{},
		"v1/DeleteOptions":                                meta.DeleteOptions{},
	} {
		kinds[gvk] = structure(reflect.TypeOf(object))
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string]any{"kinds": kinds, "types": types}); err != nil {
		panic(err)
	}
}

// structure records a struct and all that it refers to, and returns its name.
func structure(t reflect.Type) string {
	// The package path tells core/v1.Event from events/v1.Event.
	name := strings.TrimPrefix(strings.TrimPrefix(t.PkgPath(), "k8s.io/api/"), "k8s.io/apimachinery/pkg/apis/") + "." + t.Name()
	if _, known := types[name]; known {
		return name
	}
	types[name] = map[string]field{}
	fields(t, types[name], "")
	return name
}

func fields(t reflect.Type, into map[string]field, outer string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" {
			continue
		}
		if tag == "" {
			if f.Anonymous || strings.Contains(options, "inline") {
				// What has no number, such as TypeMeta, is not on the wire.
				inner := "-"
				if n := number(f); n != "" {
					inner = outer + n + "/"
				}
				fields(f.Type, into, inner)
			}
			continue
		}
		flags := ""
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			flags = "omitempty"
		}
		if strings.Contains(options, "omitzero") {
			flags = "omitzero"
		}
		entry := field{shape(f.Type), f.Type.String(), flags, f.Tag.Get("patchStrategy"), f.Tag.Get("patchMergeKey"), ""}
		if n := number(f); n != "" && outer != "-" {
			entry[5] = outer + n
		}
		for len(entry) > 2 && entry[len(entry)-1] == "" {
			entry = entry[:len(entry)-1]
		}
		into[tag] = entry
	}
}

// number is the protobuf number of a field.
func number(f reflect.StructField) string {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// shape writes a type: "*" a pointer, "[]" a list, "{}" a map, ">" a struct, else the name of a leaf.
func shape(t reflect.Type) string {
	if leaf, ok := leaves[t]; ok {
		return leaf
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + shape(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + shape(t.Elem())
	case reflect.Map:
		return "{}" + shape(t.Elem())
	case reflect.Struct:
		return ">" + structure(t)
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return "int"
	case reflect.Float32, reflect.Float64:
		return "float"
	}
	panic("no shape for " + t.String())
}
