"""Dagster's run launchers for Docker and Kubernetes, in processes in which container_processes.py replaces the APIs."""

import container_processes
from dagster_docker import DockerRunLauncher
from dagster_k8s import K8sRunLauncher

__all__ = ["DockerRunLauncher", "K8sRunLauncher"]

container_processes.docker()
container_processes.kubernetes()
