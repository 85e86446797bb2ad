// Kubeflow Trainer's own reconcilers, without the webhooks, which would need certificates that a
// kubelet mounts, and without leader election.
package main

import (
	"log"

	trainerv1alpha1 "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	runtimecore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlpkg "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerpluginsv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

func main() {
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme,
		trainerv1alpha1.AddToScheme,
		jobsetv1alpha2.AddToScheme,
		schedulerpluginsv1alpha1.AddToScheme,
	} {
		must(add(scheme))
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
	})
	must(err)
	signals := ctrl.SetupSignalHandler()
	runtimes, err := runtimecore.New(signals, manager.GetClient(), manager.GetFieldIndexer())
	must(err)
	if name, err := controller.SetupControllers(manager, runtimes, ctrlpkg.Options{}); err != nil {
		log.Fatal(name, err)
	}
	must(manager.Start(signals))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
