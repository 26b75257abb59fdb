"""Pictures of hybrid parallelism: ranks on a mesh and on nodes, clusters, and the planner's layouts."""
