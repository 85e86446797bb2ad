// The MPI operator's own controller, without leader election, and without the health check, which
// insists on port 8080 of the machine.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	kubeflow "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	kubeflowscheme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	kubeflowinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	qps := flag.Float64("kube-api-qps", 5, "requests per second")
	burst := flag.Int("kube-api-burst", 10, "requests at once")
	flag.String("lock-namespace", "", "of the lease that is not taken here")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS, config.Burst = float32(*qps), *burst
	must(kubeflowscheme.AddToScheme(scheme.Scheme)) // for Events on jobs
	client := kubernetes.NewForConfigOrDie(config)
	jobs := kubeflow.NewForConfigOrDie(config)
	ours := informers.NewSharedInformerFactory(client, 0)
	theirs := kubeflowinformers.NewSharedInformerFactory(jobs, 0)
	operator, err := controller.NewMPIJobController(
		client, jobs, nil, nil,
		ours.Core().V1().ConfigMaps(),
		ours.Core().V1().Secrets(),
		ours.Core().V1().Services(),
		ours.Batch().V1().Jobs(),
		ours.Core().V1().Pods(),
		ours.Scheduling().V1().PriorityClasses(),
		theirs.Kubeflow().V2beta1().MPIJobs(),
		"", "")
	must(err)
	running, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ours.Start(running.Done())
	theirs.Start(running.Done())
	must(operator.Run(2, running.Done()))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
