package crowd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/version"
)

// writeJSON writes a document that has no protobuf.
func writeJSON(w http.ResponseWriter, code int, document any) {
	w.Header().Set("Content-Type", contentType(document))
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(document) // a client that is gone needs no answer
}

// writeObject writes an object with its type set, in the encoding that the client accepts.
func writeObject(w http.ResponseWriter, r *http.Request, code int, object runtime.Object) {
	if !wantsProtobuf(r) {
		writeJSON(w, code, object)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(code)
	_ = protobuf.NewSerializer(nil, nil).Encode(object, w) // as above
}

// mostBody bounds the body of a request, in bytes.
const mostBody = 1 << 20

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, mostBody))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the request: %v", err))
	}
	return body, nil
}

// decode decodes the body of a request, protobuf or JSON. An empty body is no change.
func decode(r *http.Request, into runtime.Object) error {
	body, err := readBody(r)
	if err != nil || len(body) == 0 {
		return err
	}
	if r.Header.Get("Content-Type") == runtime.ContentTypeProtobuf {
		err = decodeProtobuf(body, into)
	} else {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("decode the request: %v", err))
	}
	return nil
}

func decodeProtobuf(body []byte, into runtime.Object) error {
	message, hasMagic := bytes.CutPrefix(body, []byte(magic))
	decoder, canDecode := into.(interface{ Unmarshal(data []byte) error })
	if !hasMagic || !canDecode {
		return errors.New("it is not protobuf of Kubernetes")
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(message); err != nil {
		return err
	}
	return decoder.Unmarshal(unknown.Raw)
}

// echo answers with the object that the request has, and keeps nothing.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// allowed returns a review that grants everything: there is one user.
func allowed(resource string) runtime.Object {
	typeMeta := metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String()}
	if resource == "subjectaccessreviews" {
		typeMeta.Kind = "SubjectAccessReview"
		return &authorizationv1.SubjectAccessReview{TypeMeta: typeMeta, Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	}
	typeMeta.Kind = "SelfSubjectAccessReview"
	return &authorizationv1.SelfSubjectAccessReview{TypeMeta: typeMeta, Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
}

func versionInfo() version.Info {
	return version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0-crowd"}
}
