// Command consumer is a program as it was before it had a collector.
package main

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
)

func main() {
	fmt.Println(zstd.SpeedDefault, metav1.DeletePropagationForeground, corev1.New, cache.NewIndexer)
}
